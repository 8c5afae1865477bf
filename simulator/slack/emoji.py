"""The names of standard emoji that a reaction may have."""

import re
from typing import Final

_SKIN_TONE: Final = re.compile(r"::skin-tone-[2-6]$")
_NAMES: Final = frozenset(
    """
    +1 -1 100 1234 a ab abacus abc accept adhesive_bandage airplane alarm_clock alien ambulance anchor angel anger
    angry anguished ant apple arrow_backward arrow_double_down arrow_double_up arrow_down arrow_down_small
    arrow_forward arrow_heading_down arrow_heading_up arrow_left arrow_right arrow_right_hook arrow_up arrow_up_down
    arrow_up_small arrows_clockwise arrows_counterclockwise art astonished atm atom_symbol avocado b baby back
    badger balloon ballot_box_with_ballot ballot_box_with_check bamboo banana bangbang bank bar_chart baseball
    basketball battery beach_with_umbrella bear beer beers beetle beginner bell bell_pepper bike bird birthday
    black_circle black_heart black_large_square black_nib black_square_button black_square_for_stop blossom
    blue_book blue_heart blush boar bomb book bookmark bookmark_tabs books boom bouquet bow bowtie boy brain bread
    briefcase broken_heart broom bug bulb bullettrain_front bus busts_in_silhouette butterfly cactus cake calendar
    calling camel camera camera_with_flash cancer candle candy car card_file_box card_index card_index_dividers
    carrot cat cd chart chart_with_downwards_trend chart_with_upwards_trend checkered_flag cheese_wedge cherries
    cherry_blossom chess_pawn chicken chipmunk chocolate_bar christmas_tree cinema circus_tent city_sunrise clap
    clapper classical_building clinking_glasses clipboard clock1 clock10 clock11 clock12 clock2 clock3 clock4 clock5
    clock6 clock7 clock8 clock9 closed_book closed_lock_with_key closed_umbrella cloud clown_face cocktail coffee
    coin cold_face cold_sweat compass compression computer confetti_ball confounded confused congratulations
    construction construction_worker control_knobs convenience_store cookie cool cop copyright corn cow crab
    credit_card crescent_moon cricket crocodile crossed_fingers crossed_flags crossed_swords crown cry
    crying_cat_face crystal_ball cup_with_straw cupid currency_exchange curry cut_of_meat cyclone dancer dart dash
    date deciduous_tree department_store desert_island desktop_computer detective diamond_shape_with_a_dot_inside
    disappointed disappointed_relieved dizzy dizzy_face dna do_not_litter dog dollar dolphin door
    double_vertical_bar doughnut dove_of_peace dragon dragon_face dress droplet drum_with_drumsticks duck dvd e-mail
    eagle ear ear_of_rice earth_africa earth_americas earth_asia egg eggplant eight eight_pointed_black_star
    eight_spoked_asterisk eject electric_plug elephant email end envelope envelope_with_arrow euro exclamation
    exploding_head expressionless eye eyeglasses eyes face_palm face_with_cowboy_hat face_with_head_bandage
    face_with_monocle face_with_raised_eyebrow face_with_rolling_eyes face_with_thermometer factory fallen_leaf
    family fast_forward fax fearful feet female-technologist file_cabinet file_folder film_frames fire fire_engine
    fire_extinguisher firecracker fireworks first_place_medal fish fishing_pole_and_fish fist five flags flashlight
    floppy_disk flushed flying_saucer fog foggy football footprints fork_and_knife fountain four four_leaf_clover
    fox_face free fried_egg fries frog frowning fuelpump full_moon game_die gear gem ghost gift gift_heart
    giraffe_face girl globe_with_meridians goat golf grapes green_apple green_book green_heart grey_exclamation
    grey_question grimacing grin grinning guitar gun hamburger hammer hammer_and_pick hammer_and_wrench hamster hand
    handshake hankey hash hatched_chick hatching_chick headphones hear_no_evil heart heart_eyes heart_eyes_cat
    heartbeat heartpulse heavy_check_mark heavy_division_sign heavy_dollar_sign heavy_exclamation_mark
    heavy_heart_exclamation_mark_ornament heavy_minus_sign heavy_multiplication_x heavy_plus_sign hedgehog
    helicopter herb high_brightness hole honey_pot horse hospital hot_face hot_pepper hotdog hotel hourglass
    hourglass_flowing_sand house hugging_face hushed ice_cream icecream id imp inbox_tray incoming_envelope infinity
    information_desk_person information_source innocent interrobang iphone japan jigsaw joy joystick kangaroo key
    keyboard keycap_star keycap_ten kiss kissing kissing_heart kite kiwifruit knife koala label ladder
    large_blue_circle large_blue_diamond large_blue_square large_green_circle large_green_square large_orange_circle
    large_orange_diamond large_orange_square large_purple_circle large_purple_square large_red_square
    large_yellow_circle large_yellow_square laughing leaves ledger left_right_arrow lemon leopard level_slider link
    linked_paperclips lion_face lips lipstick lizard llama lobster lock lock_with_ink_pen lollipop loop loud_sound
    loudspeaker love_letter lower_left_crayon lower_left_fountain_pen lower_left_paintbrush luggage mag mag_right
    magic_wand magnet mailbox mailbox_with_mail male-technologist man man_dancing mango mantelpiece_clock maple_leaf
    mask mechanical_arm medal mega melon memo mending_heart metal microphone microscope milky_way minibus minidisc
    mobile_phone_off money_mouth_face money_with_wings moneybag monkey monkey_face moon mortar_board mount_fuji
    mountain mouse movie_camera moyai muscle mushroom musical_keyboard musical_note musical_score mute nail_care
    name_badge nerd_face neutral_face new new_moon newspaper night_with_stars nine no_bell no_entry no_entry_sign
    no_good no_mouth no_smoking notebook notebook_with_decorative_cover notes nut_and_bolt o octagonal_sign octopus
    office oil_drum ok ok_hand ok_woman old_key on one open_book open_file_folder open_hands open_mouth orange_book
    orange_heart orangutan otter outbox_tray owl ox package page_facing_up page_with_curl palm_tree panda_face
    paperclip parking parrot part_alternation_mark partly_sunny partying_face passport_control peach peacock pear
    pencil pencil2 penguin pensive performing_arts persevere person_frowning person_in_tuxedo phone pick pig pill
    pinched_fingers pinching_hand pineapple pizza point_down point_left point_right point_up point_up_2 polar_bear
    police_car poop popcorn post_office postbox potato pouch pound pray pretzel printer purple_heart purse pushpin
    put_litter_in_its_place question rabbit raccoon racehorse radio radio_button radioactive_sign rage rainbow
    rainbow-flag raised_hand raised_hand_with_fingers_splayed raised_hands raising_hand ram rat receipt recycle
    red_car red_circle registered relaxed relieved reminder_ribbon repeat repeat_one restroom rewind ribbon rice
    ring robot_face rocket rolled_up_newspaper roller_coaster rolling_on_the_floor_laughing rooster rose
    rotating_light round_pushpin runner running safety_pin safety_vest sailboat salt salute saluting_face sandwich
    santa satellite satellite_antenna saxophone scales scissors scorpion scream screwdriver scroll seal seat
    second_place_medal secret see_no_evil seedling selfie seven shallow_pan_of_food shamrock shark sheep shell
    shield ship shopping_trolley shower shrimp shrug shushing_face signal_strength six skull skull_and_crossbones
    sleeping sleepy sleuth_or_spy slightly_frowning_face slightly_smiling_face slot_machine sloth small_blue_diamond
    small_orange_diamond small_red_triangle small_red_triangle_down smile smiley smiling_face_with_3_hearts
    smiling_imp smirk smoking snail snake sneezing_face snowboarder snowflake snowman soap sob soccer soon sos sound
    space_invader spaghetti sparkle sparkler sparkles sparkling_heart speak_no_evil speaker speech_balloon speedboat
    spider spider_web spiral_calendar_pad spiral_note_pad sponge spoon squid stadium star star-struck star2 stars
    stethoscope stopwatch strawberry stuck_out_tongue stuck_out_tongue_winking_eye sun_with_face sunflower
    sunglasses sunny sunrise sunrise_over_mountains superhero sushi sweat sweat_drops sweat_smile syringe t-rex taco
    tada tea technologist teddy_bear telephone telephone_receiver telescope tennis tent test_tube thermometer
    thinking_face third_place_medal thought_balloon thread three three_button_mouse thumbsdown thumbsup
    thunder_cloud_and_rain ticket tiger timer_clock tired_face tm toilet tomato tongue toolbox tooth top tophat
    tornado trackball tractor traffic_light train tram triangular_flag_on_post triangular_ruler trident trophy
    tropical_fish truck trumpet tulip turtle tv twisted_rightwards_arrows two umbrella unamused underage
    unicorn_face unlock up upside_down_face us v vampire vertical_traffic_light vhs vibration_mode video_camera
    video_game violin volcano volleyball vs walking warning wastebasket watch water_buffalo watermelon wave
    waving_black_flag waving_white_flag weary whale whale2 wheel_of_dharma wheelchair white_check_mark white_circle
    white_flower white_frowning_face white_heart white_large_square wind_chime wine_glass wink wolf woman world_map
    worm worried wrench writing_hand x yawning_face yellow_heart yen yo-yo yum zany_face zap zebra_face zero
    zipper_mouth_face zombie zzz
    """.split()  # noqa: SIM905 - one name per line would fill eight hundred lines
)


def is_emoji(name: str) -> bool:
    """Whether the platform knows the name, without colons; a skin tone may follow it."""
    return _SKIN_TONE.sub("", name) in _NAMES
